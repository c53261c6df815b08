"""The only package that imports dagster: assets, checks, partitions, jobs, sensors, schedules."""
