"""Fusion: lists made of lanes."""
