"""Layers of which each worker of a replica holds a part and computes a part (--sharding tensor:K).

M. Shoeybi et al.: Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism, 2019.
"""
