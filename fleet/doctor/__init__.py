"""What `producer doctor` and `worker doctor` have in common: how checks run and print, and the checks that both need."""
