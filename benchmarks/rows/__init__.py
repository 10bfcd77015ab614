"""The rows of the speed benchmarks, a module each: ``measure(bench)`` gives a section of the report with its bars."""
