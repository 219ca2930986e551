"""Where jobs run. One protocol (`base`), one file for each place."""
