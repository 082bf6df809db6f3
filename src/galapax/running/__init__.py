"""From a call to its Result: what was asked, who watches, running it."""
