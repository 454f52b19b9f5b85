"""The daemon: one open memory behind a Unix socket and a local port."""
