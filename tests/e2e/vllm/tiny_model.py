"""Makes a tiny Llama with random weights and a byte-level tokenizer of its own: `tiny_model.py DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[attr-defined, unused-ignore]
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

CHAT_TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def main(directory: Path) -> None:
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    texts = [path.read_text("utf-8") for path in sorted(Path(__file__).parents[3].glob("docs/*.md"))]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=2048, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    words.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


main(Path(sys.argv[1]))
