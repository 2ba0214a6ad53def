"""The capacity planner and fleet simulator: production policies under a virtual clock."""
