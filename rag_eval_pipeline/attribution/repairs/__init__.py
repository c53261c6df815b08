"""What each cause cost: stages repaired by gold, everything downstream really run again."""
