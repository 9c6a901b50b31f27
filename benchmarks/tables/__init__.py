"""The measured tables and figures of the documentation, made from the files in results/."""
