"""`kubectl gangsched`: inspects a cluster's gangs with the user's own permissions.

Invariant: read-only, except for the reviews that `plan` and `doctor` create, which store nothing. It says what it
cannot determine. Text from the cluster reaches the terminal only through `terminal.clean`. A command imports only what
it needs, so that it answers within a second.
"""
