"""Local SGD and DiLoCo: workers take steps of their own and average what they learned at intervals."""
