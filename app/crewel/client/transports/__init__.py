"""How messages travel: one file a transport, all behind `base.Transport`."""
