"""Pipeline of stages: the workers of a replica hold consecutive layers and hand values on (`--sharding pipeline:K`).

All stages of a replica compute the same micro-batches, one after another. Batch normalisation normalizes each
micro-batch by itself, as on one worker; its running statistics follow all micro-batches of a replica, K times as many
as those of a worker with the whole model.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.dataloader import PARAMETER_DTYPES, BatchLoader
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.sharding.pipeline.model_trace import (
    ModelTrace,
    bind_inputs,
    list_stage_inputs,
)
from equipoise.training.sharding.pipeline.piece_measurement import measure_model_nodes, share_measurements
from equipoise.training.sharding.pipeline.pipeline_steps import IdleOptimizer, PipelineStep, PipelineSteps
from equipoise.training.sharding.pipeline.stage_cut import (
    StageBoundary,
    build_stage,
    cut_stages,
    require_uncompiled,
)
from equipoise.training.sharding.pipeline.stage_evaluation import StageEvaluation
from equipoise.training.sharding.pipeline.stage_gradients import NormPlaces, StageGradientSum, TiedWeights
from equipoise.training.sharding.pipeline.stage_groups import build_holder_group, build_stage_groups
from equipoise.training.sharding.pipeline.stage_links import DownstreamLinks, ReceivingLink, SendingLink, UpstreamLinks
from equipoise.training.sharding.pipeline.stage_weights import place_weights, release_tensor
from equipoise.training.sharding.pipeline.tensor_layout import TensorLayout
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.sharding.worker_mesh import WorkerMesh
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.torch_state import collect_weights, get_dropout_generator
from equipoise.workloads import Workload
from equipoise.workloads.batch import Batch


class PipelineSharding(ShardedModel):
    """Some consecutive layers of the model, as one of the stages of a replica."""

    measures_noise = False

    def __init__(
        self, config: TrainConfig, model: nn.Module, mesh: WorkerMesh, workload: Workload, loader: BatchLoader
    ) -> None:
        super().__init__(config, model, mesh)
        require_uncompiled(config)
        self.device = loader.device
        inputs, targets = loader.load_micro_batch(0, 0)
        trace = ModelTrace(model, inputs)
        self.boundaries = self._cut_model(trace, workload, inputs, targets)
        self.places = place_weights(model, trace, self.boundaries)
        self.whole_parameters = list(self.parameters)
        self.whole_weights = {name: value.to("meta") for name, value in collect_weights(model).items()}
        self.train_stage = build_stage(trace, trace.train_graph, self.boundaries, mesh.part)
        self.eval_stage = build_stage(trace, trace.eval_graph, self.boundaries, mesh.part)
        self.input_names = list_stage_inputs(self.train_stage)
        self.reads_batches = bool(self.input_names) or self._holds_last_stage
        for place in self.places.values():
            if mesh.part not in place.holders:
                for name in place.aliases:
                    release_tensor(model, name)
        self.parameters = {name: value for name, value in self.parameters.items() if self._is_held(name)}
        self.groups = build_stage_groups(mesh)
        self.tied = self._group_tied_weights()
        has_fixed_layout = loader.train_split.is_in_memory
        self.upstream = self._link_upstream(has_fixed_layout) if mesh.part else None
        self.downstream = None if self._holds_last_stage else self._link_downstream(has_fixed_layout)
        self.evaluation = StageEvaluation(self)

    @property
    def _holds_last_stage(self) -> bool:
        return self.mesh.part == self.mesh.num_parts - 1

    def _is_held(self, name: str) -> bool:
        return self.mesh.part in self.places[name].holders

    def _cut_model(self, trace: ModelTrace, workload: Workload, inputs: Batch, targets: Batch) -> list[StageBoundary]:
        """Return the boundaries of the stages, by times that the first worker measures."""
        measurements = None
        if self.mesh.rank == 0:
            measurements = measure_model_nodes(self.config, workload, trace, (inputs, targets), self.device)
        shared = share_measurements(measurements, len(trace.nodes), self.device)
        return cut_stages(trace, shared, self.mesh.num_parts)

    def _group_tied_weights(self) -> list[TiedWeights]:
        """Return the weights of this stage that others use too, by the stages that do."""
        names_by_holders: dict[tuple[int, ...], list[str]] = {}
        for name in self.whole_parameters:
            holders = self.places[name].holders
            if len(holders) > 1:
                names_by_holders.setdefault(holders, []).append(name)
        groups = {holders: build_holder_group(self.mesh, holders) for holders in names_by_holders}
        return [
            TiedWeights(names, holders, group)
            for holders, names in names_by_holders.items()
            if (group := groups[holders]) is not None
        ]

    def _link_upstream(self, has_fixed_layout: bool) -> UpstreamLinks:
        source = self.mesh.rank - 1
        return UpstreamLinks(
            self.boundaries[self.mesh.part - 1],
            ReceivingLink(source, self.groups.values, self.device),
            SendingLink(source, self.groups.gradients),
            has_fixed_layout,
            TensorLayout.read(get_dropout_generator(self.device).get_state()),
        )

    def _link_downstream(self, has_fixed_layout: bool) -> DownstreamLinks:
        target = self.mesh.rank + 1
        return DownstreamLinks(
            self.boundaries[self.mesh.part],
            SendingLink(target, self.groups.values),
            ReceivingLink(target, self.groups.gradients, self.device),
            has_fixed_layout,
        )

    def call_stage(self, received: Tensor | None, inputs: Batch) -> Any:
        """Return the value of this stage, from that of the stage before and the model's inputs."""
        stage = self.train_stage if self.module.training else self.eval_stage
        values = bind_inputs(self.module, inputs) if self.input_names else {}
        # a copy, because a layer may overwrite what it is called with, which torch forbids for what gradients are of
        first = () if received is None else (received.clone() if received.requires_grad else received,)
        return stage(*first, *(values[name] for name in self.input_names))

    def build_optimizer(self, lr_scales: Mapping[str, float]) -> RunOptimizer:
        """Build the optimizer of this stage's weights."""
        return super().build_optimizer(lr_scales) if self.parameters else IdleOptimizer()

    def build_steps(
        self, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer, max_examples: int
    ) -> PipelineSteps:
        """Build the steps of this stage."""
        mesh, counted = self.mesh, enumerate(self.whole_parameters)
        places = NormPlaces(
            {name: place for place, name in counted if self.places[name].holders[0] == mesh.part},
            len(self.whole_parameters),
            PARAMETER_DTYPES[self.config.precision],
            self.device,
            self.groups.values,
        )
        sync = StageGradientSum(self.parameters, mesh.num_replicas, self.groups.replicas, self.tied, places)
        step = PipelineStep(self, backward_pass, sync, optimizer, timer)
        micros = list_own_micro_batches(self.config, mesh.data_rank, mesh.data_workers)
        return PipelineSteps(step, sync, self, micros)

    def try_micro_batch(
        self, backward_pass: BackwardPass, inputs: Batch, targets: Batch, step: int, micro_index: int
    ) -> None:
        """Compute this stage's passes, of as many micro-batches as it has in flight, from a value of zeros."""
        count = len(list_own_micro_batches(self.config, self.mesh.data_rank, self.mesh.data_workers))
        is_gpipe = self.config.pipeline_schedule == "gpipe"
        in_flight = count if is_gpipe else min(count, self.mesh.num_parts - self.mesh.part)
        results = []
        for _ in range(in_flight):
            received = self.upstream and self.upstream.boundary.layout.allocate(self.device).zero_()
            if received is not None and self.upstream:
                received.requires_grad_(self.upstream.boundary.needs_gradient)
            with backward_pass.autocast():
                outputs = self.call_stage(received, inputs)
                results.append(backward_pass.workload.loss(outputs, targets) if self._holds_last_stage else outputs)
        for result in results:
            if result.requires_grad:
                torch.autograd.backward(result, torch.ones_like(result))

    def list_weights(self) -> dict[str, Tensor]:
        """Return the weights and buffers of this stage."""
        held = collect_weights(self.module)
        return {name: held[name] for name in self.whole_weights if self._is_held(name)}

    def is_saved_here(self, name: str) -> bool:
        """Return whether this worker saves a weight: in the first replica, the first stage that uses it."""
        return self.mesh.replica == 0 and name in self.places and self.places[name].holders[0] == self.mesh.part

    def holds_state(self, name: str) -> bool:
        """Return whether this stage trains a weight."""
        return name in self.parameters

    @torch.no_grad()
    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Load this stage's weights and buffers from those of the whole model."""
        for name, value in self.list_weights().items():
            value.copy_(tensors[name])

    def compute_rows(
        self, inputs: Batch, targets: Batch, metric: Callable[[Batch, Batch], Tensor]
    ) -> tuple[Tensor, Batch | None]:
        """Return a metric's rows of a batch, which are known where results count: on the last stage."""
        return self.evaluation.compute_rows(inputs, targets, metric)

    def average_buffers(self) -> None:
        """Average this stage's running statistics over replicas."""
        if self.groups.replicas is None:
            return
        for name, buffer in self.module.named_buffers():
            if buffer.is_floating_point() and self._is_held(name):
                total = buffer.clone()
                dist.all_reduce(total, group=self.groups.replicas)
                buffer.copy_(total / self.mesh.num_replicas)

    def gather_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights and buffers of the whole model by name, each from the stage that saves it."""
        held = self.list_weights()
        for name, like in self.whole_weights.items():
            value = (
                held[name].contiguous()
                if name in held
                else torch.empty(like.shape, dtype=like.dtype, device=self.device)
            )
            dist.broadcast(value, self.places[name].holders[0])  # ranks of the first replica are those of its stages
            yield name, value
