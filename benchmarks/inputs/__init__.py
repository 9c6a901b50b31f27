"""What benchmarks run on: rounds that were captured, rows and samples that are made up."""
