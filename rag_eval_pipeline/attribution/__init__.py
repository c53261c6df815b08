"""Where the evidence was lost: ledger, fate, waterfall."""
