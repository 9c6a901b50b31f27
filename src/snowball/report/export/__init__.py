"""Tables and figures of sweeps for other programs: CSV, Markdown, LaTeX, terminal, static images."""
