"""Values that the other packages exchange: pods, nodes, gangs, snapshots, plans, messages.

Invariant: everything here is a value: frozen, slotted and comparable; its methods depend on its own
fields only. Nothing here imports another package of gangsched, the clock, the network or asyncio.
"""
