"""Jobs as a cluster holds them, whoever made them: read, explained, ended."""
