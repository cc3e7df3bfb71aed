"""`kubectl gangsched`: inspects a cluster's gangs with the user's own permissions.

Invariant: read-only, except for the reviews that `plan` and `doctor` create, which store nothing. A
command says what it cannot determine. Text from the cluster is written to the terminal only through
`terminal.clean`. A command imports only what it needs, so that it answers within a second.
"""
