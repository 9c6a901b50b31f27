"""Makes the measured tables and figures of the documentation from the files in results/."""
