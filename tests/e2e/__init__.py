"""Tests on a real etcd and kube-apiserver."""
