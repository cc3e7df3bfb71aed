"""`ui`: the page live, on this machine, with the permissions of the user."""
