"""FGD's packing experiment (Weng et al., "Beware of Fragmentation", USENIX ATC'23) with ours and
best-fit beside it.
"""
