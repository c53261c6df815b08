"""Filtering: predicates and entitlement."""
