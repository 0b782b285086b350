"""Steps with servers as the options ask for them."""

from collections.abc import Sequence

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.parallel.node_groups import gather_nodes
from equipoise.parameter_store.lockstep_order import LockstepOrder
from equipoise.parameter_store.node_level import FirstOfNode, OtherOfNode, WorkerExchange
from equipoise.parameter_store.partition import require_enough_keys, store_traffic
from equipoise.parameter_store.store import ParameterStore
from equipoise.training.gradient_sync import GradientAllReduce, SumTraffic
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.training.steps.gradient_step import GradientStep
from equipoise.training.store_steps.server_steps import ServerSteps
from equipoise.training.store_steps.store_sync import StoreSync


def build_server_steps(
    config: TrainConfig, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer
) -> ExactSteps:
    """Build the steps of this process; one alone is its own server, and takes the same steps without messages."""
    parameters, rank, processes = optimizer.named_parameters, timer.rank, timer.workers
    micro_indices = list_own_micro_batches(config, rank, processes)
    require_enough_keys(len(parameters), config.servers)
    if processes == 1:
        alone = GradientAllReduce(list(parameters.values()), workers=1)
        return ExactSteps(GradientStep(config, backward_pass, alone, optimizer, timer), micro_indices)
    nodes = gather_nodes(timer.device) if config.all_reduce == "two-level" else list(range(processes))
    groups = group_ranks(nodes)
    servers = count_servers(config, processes, len(groups), len(parameters))
    store = ParameterStore(
        config,
        parameters,
        optimizer.lr_scales,
        worker_ranks=[ranks[0] for ranks in groups],
        servers=servers,
        build_order=lambda: LockstepOrder(len(groups)),
        is_asynchronous=False,
    )
    own_group = next(ranks for ranks in groups if rank in ranks)
    exchange = build_exchange(store, own_group, rank)
    traffic = count_traffic(store, max(map(len, groups)), clips=bool(config.clip_norm))
    sync = StoreSync(list(parameters.values()), exchange, processes, traffic)
    return ServerSteps(GradientStep(config, backward_pass, sync, optimizer, timer), micro_indices, store, sync)


def group_ranks(nodes: Sequence[int]) -> list[list[int]]:
    """Return the ranks of each node in their order, given the node of each rank; nodes by their first rank."""
    groups: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        groups.setdefault(node, []).append(rank)
    return list(groups.values())


def count_servers(config: TrainConfig, processes: int, groups: int, keys: int) -> int:
    """Return the number of servers, at most one beside each worker that pushes; refuse more than there are nodes.

    A run that is short of workers has fewer servers than it was asked for, until there are more.
    """
    if config.servers > groups and processes >= config.workers:
        raise EquipoiseError(
            "option-conflict",
            f"cannot run {config.servers} servers on {pluralize(groups, 'node')} by --all-reduce two-level: only the"
            " first worker of each node has one",
            f"choose --servers {groups} or fewer, or omit --all-reduce",
        )
    return min(config.servers or groups, groups, keys)


def build_exchange(store: ParameterStore, own_group: Sequence[int], rank: int) -> WorkerExchange:
    """Build what this process does with its gradients: push them, or send them to the first worker of its node."""
    if store.client is None:
        return OtherOfNode(store.channel, list(store.layout.parameters.values()), own_group[0])
    if len(own_group) == 1:
        return store.client
    return FirstOfNode(store.client, store.channel, list(store.layout.parameters.values()), own_group[1:])


def count_traffic(store: ParameterStore, group_size: int, clips: bool) -> SumTraffic:
    """Return what the worker that sends most sends in a step, and rounds; with those inside a node of `group_size`."""
    part_bytes = [sum(store.layout.parameters[key].nbytes for key in part) for part in store.layout.parts]
    between = store_traffic(part_bytes, len(store.layout.worker_ranks), clips)
    inside = (group_size - 1) * sum(part_bytes)
    return SumTraffic(between.sent_bytes + inside, between.rounds + (2 if inside else 0))
