"""From a validated task to a result: search, schedules, engines and the host loop."""
