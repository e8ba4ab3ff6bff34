"""Hugging Face's Trainer on the workers of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.data
import numpy as np
import torch
import transformers
from lockstep import FailureConfig, Result, session
from lockstep.integrations.transformers import ReportCheckpointCallback, checkpoint_path, prepare_trainer

Fit = Callable[..., Result]


def model() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForSequenceClassification(config)


class Sentences(torch.utils.data.Dataset[Any]):
    """The label says whether the first word is one of the first half."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, Any]:
        words = [index, *range(7)]
        return {"input_ids": words, "attention_mask": [1] * 8, "labels": int(index < 16)}


def arguments(place: Path, **options: Any) -> Any:
    return transformers.TrainingArguments(
        str(place / "out"),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        per_device_train_batch_size=4,
        learning_rate=5e-3,
        seed=1,
        **{"num_train_epochs": 2, "save_strategy": "epoch", "eval_strategy": "epoch", **options},
    )


def test_it_trains_on_all_ranks_and_reports_its_checkpoints(torch_fit: Fit, tmp_path: Path) -> None:
    def train_func(config: dict[str, Any]) -> None:
        trainer = transformers.Trainer(
            model(), arguments(tmp_path), train_dataset=Sentences(), eval_dataset=Sentences()
        )
        assert trainer.args.world_size == session.get_world_size()
        trainer.add_callback(ReportCheckpointCallback())
        prepare_trainer(trainer).train()
        total = sum(parameter.sum().item() for parameter in trainer.model.parameters())
        (tmp_path / f"weights-{session.get_world_rank()}").write_text(repr(total))

    result = torch_fit(train_func)
    assert result.metrics["step"] == 8, "32 samples, 2 ranks, batches of 4, 2 epochs"
    assert {"eval_loss", "epoch"} <= set(result.metrics)
    assert (tmp_path / "weights-0").read_text() == (tmp_path / "weights-1").read_text()
    assert len(result.best_checkpoints) == 2
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as directory:
        saved = transformers.BertForSequenceClassification.from_pretrained(Path(directory, "checkpoint"))
    total = sum(parameter.sum().item() for parameter in saved.parameters())
    assert repr(total) == (tmp_path / "weights-0").read_text()


def test_a_failed_run_continues_from_its_checkpoint(torch_fit: Fit, tmp_path: Path) -> None:
    def fails_once(config: dict[str, Any]) -> None:
        class Fails(transformers.TrainerCallback):  # type: ignore[misc]
            def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if state.epoch >= 1 and not (tmp_path / "failed").exists():
                    torch.distributed.barrier()
                    (tmp_path / "failed").touch()
                    raise RuntimeError("once")

        trainer = transformers.Trainer(
            model(), arguments(tmp_path, eval_strategy="no"), train_dataset=Sentences(), callbacks=[Fails()]
        )
        trainer.add_callback(ReportCheckpointCallback())
        with checkpoint_path() as path:
            trainer.train(resume_from_checkpoint=path)

    result = torch_fit(fails_once, failure_config=FailureConfig(max_failures=1))
    assert result.metrics["step"] == 8
    assert result.failures


def test_batches_of_a_shard_belong_to_their_rank(torch_fit: Fit, tmp_path: Path) -> None:
    rows = {"first": np.arange(32), "labels": (np.arange(32) < 16).astype(np.int64)}

    def train_func(config: dict[str, Any]) -> None:
        seen: list[int] = []

        def collate(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
            seen.extend(batch["first"].tolist())
            words = torch.stack([torch.tensor([first, *range(7)]) for first in batch["first"]])
            return {"input_ids": words, "labels": torch.as_tensor(batch["labels"])}

        shard = session.get_dataset_shard("train")
        trainer = transformers.Trainer(
            model(),
            arguments(tmp_path, max_steps=4, save_strategy="no", eval_strategy="no"),
            train_dataset=shard.iter_torch_batches(batch_size=4, collate_fn=collate),
        )
        prepare_trainer(trainer).train()
        (tmp_path / f"seen-{session.get_world_rank()}").write_text(repr(seen))

    torch_fit(train_func, datasets={"train": lockstep.data.from_numpy(rows)})
    seen = [eval((tmp_path / f"seen-{rank}").read_text()) for rank in range(2)]
    assert sorted(seen[0] + seen[1]) == list(range(32))


def test_accelerate_joins_the_ranks(torch_fit: Fit) -> None:
    def train_func() -> None:
        import accelerate

        accelerator = accelerate.Accelerator(cpu=True)
        assert (accelerator.num_processes, accelerator.process_index) == (2, session.get_world_rank())
        torch.manual_seed(0)
        net = torch.nn.Linear(1, 1)
        x = torch.arange(8, dtype=torch.float32).unsqueeze(1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=2)
        net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=1e-3), loader)
        seen = []
        for (batch,) in loader:
            seen += batch.flatten().tolist()
            accelerator.backward((net(batch) ** 2).mean())
            optimizer.step()
            optimizer.zero_grad()
        everybody = sorted(accelerator.gather(torch.tensor(seen)).tolist())
        weights = accelerator.gather(net.module.weight.detach().flatten()).tolist()
        session.report({"seen": everybody, "same": weights[0] == weights[1]})

    result = torch_fit(train_func)
    assert result.metrics["seen"] == list(range(8))
    assert result.metrics["same"]
