"""Warming: starting and stopping replicas."""
