"""From measures to decisions: the scorecard."""
