"""The public Python interface: `Memory`, embedded in a program or backed by a daemon."""
