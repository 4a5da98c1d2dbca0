"""Python interface of CANN's runtime: there for hosts that import it at start."""
