"""Random numbers, mathematics and every question about the device."""
