"""Values that the other packages exchange: pods, nodes, gangs, snapshots, plans, messages.

Invariant: everything here is a value: frozen, slotted, comparable, with behaviour derived from its own fields only.
Nothing here imports another package of gangsched, the clock, the network or asyncio.
"""
