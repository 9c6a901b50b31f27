"""Self-contained web pages about runs, sweeps and audits."""
