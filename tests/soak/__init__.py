"""Long runs of real workloads on a real control plane; none of them is part of `make test`."""
