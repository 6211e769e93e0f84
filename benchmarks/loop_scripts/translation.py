"""A Transformer that translates: shared embeddings, a wrapper around the optimizer, label smoothing by hand."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import TensorDataset

import headwater as hw
from loop_scripts.catalogue import loop

VOCAB, PAD, D = 20, 0, 16


def sentences(count, seed):
    g = torch.Generator().manual_seed(seed)
    length = torch.randint(4, 9, (count,), generator=g)
    src = torch.randint(3, VOCAB, (count, 8), generator=g)
    src[torch.arange(8)[None] >= length[:, None]] = PAD
    trg = torch.where(src == PAD, src, (src - 3 + 5) % (VOCAB - 3) + 3)
    trg = torch.cat([torch.full((count, 1), 1), trg, torch.full((count, 1), PAD)], 1)
    trg[torch.arange(count), length + 1] = 2
    return TensorDataset(src, trg)


class ScaledDotProductAttention(nn.Module):
    def __init__(self, temperature, attn_dropout=0.1):
        super().__init__()
        self.temperature = temperature
        self.dropout = nn.Dropout(attn_dropout)

    def forward(self, q, k, v, mask=None):
        attn = torch.matmul(q / self.temperature, k.transpose(2, 3))
        if mask is not None:
            attn = attn.masked_fill(mask == 0, -1e9)
        attn = self.dropout(F.softmax(attn, dim=-1))
        return torch.matmul(attn, v), attn


class MultiHeadAttention(nn.Module):
    def __init__(self, n_head, d_model, d_k, d_v, dropout=0.1):
        super().__init__()
        self.n_head, self.d_k, self.d_v = n_head, d_k, d_v
        self.w_qs = nn.Linear(d_model, n_head * d_k, bias=False)
        self.w_ks = nn.Linear(d_model, n_head * d_k, bias=False)
        self.w_vs = nn.Linear(d_model, n_head * d_v, bias=False)
        self.fc = nn.Linear(n_head * d_v, d_model, bias=False)
        self.attention = ScaledDotProductAttention(temperature=d_k**0.5)
        self.dropout = nn.Dropout(dropout)
        self.layer_norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, q, k, v, mask=None):
        d_k, d_v, n_head = self.d_k, self.d_v, self.n_head
        sz_b, len_q, len_k, len_v = q.size(0), q.size(1), k.size(1), v.size(1)
        residual = q
        q = self.w_qs(q).view(sz_b, len_q, n_head, d_k)
        k = self.w_ks(k).view(sz_b, len_k, n_head, d_k)
        v = self.w_vs(v).view(sz_b, len_v, n_head, d_v)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if mask is not None:
            mask = mask.unsqueeze(1)
        q, attn = self.attention(q, k, v, mask=mask)
        q = q.transpose(1, 2).contiguous().view(sz_b, len_q, -1)
        q = self.dropout(self.fc(q))
        q += residual
        return self.layer_norm(q), attn


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_in, d_hid, dropout=0.1):
        super().__init__()
        self.w_1 = nn.Linear(d_in, d_hid)
        self.w_2 = nn.Linear(d_hid, d_in)
        self.layer_norm = nn.LayerNorm(d_in, eps=1e-6)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        residual = x
        x = self.w_2(F.relu(self.w_1(x)))
        x = self.dropout(x)
        x += residual
        return self.layer_norm(x)


class PositionalEncoding(nn.Module):
    def __init__(self, d_hid, n_position=50):
        super().__init__()
        self.register_buffer("pos_table", self._get_sinusoid_encoding_table(n_position, d_hid))

    def _get_sinusoid_encoding_table(self, n_position, d_hid):
        def get_position_angle_vec(position):
            return [position / np.power(10000, 2 * (hid_j // 2) / d_hid) for hid_j in range(d_hid)]

        table = np.array([get_position_angle_vec(pos_i) for pos_i in range(n_position)])
        table[:, 0::2] = np.sin(table[:, 0::2])
        table[:, 1::2] = np.cos(table[:, 1::2])
        return torch.tensor(table, dtype=torch.get_default_dtype()).unsqueeze(0)

    def forward(self, x):
        return x + self.pos_table[:, : x.size(1)].clone().detach()


class EncoderLayer(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.slf_attn = MultiHeadAttention(2, D, 8, 8, dropout=dropout)
        self.pos_ffn = PositionwiseFeedForward(D, 32, dropout=dropout)

    def forward(self, x, mask=None):
        x, attn = self.slf_attn(x, x, x, mask=mask)
        return self.pos_ffn(x), attn


class DecoderLayer(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.slf_attn = MultiHeadAttention(2, D, 8, 8, dropout=dropout)
        self.enc_attn = MultiHeadAttention(2, D, 8, 8, dropout=dropout)
        self.pos_ffn = PositionwiseFeedForward(D, 32, dropout=dropout)

    def forward(self, x, enc, slf_mask=None, enc_mask=None):
        x, a = self.slf_attn(x, x, x, mask=slf_mask)
        x, b = self.enc_attn(x, enc, enc, mask=enc_mask)
        return self.pos_ffn(x), a, b


class Encoder(nn.Module):
    def __init__(self, dropout, scale_emb):
        super().__init__()
        self.src_word_emb = nn.Embedding(VOCAB, D, padding_idx=PAD)
        self.position_enc = PositionalEncoding(D)
        self.dropout = nn.Dropout(p=dropout)
        self.layer_stack = nn.ModuleList([EncoderLayer(dropout) for _ in range(1)])
        self.layer_norm = nn.LayerNorm(D, eps=1e-6)
        self.scale_emb = scale_emb

    def forward(self, src, mask):
        x = self.src_word_emb(src)
        if self.scale_emb:
            x *= D**0.5
        x = self.layer_norm(self.dropout(self.position_enc(x)))
        for layer in self.layer_stack:
            x, _ = layer(x, mask)
        return (x,)


class Decoder(nn.Module):
    def __init__(self, dropout, scale_emb):
        super().__init__()
        self.trg_word_emb = nn.Embedding(VOCAB, D, padding_idx=PAD)
        self.position_enc = PositionalEncoding(D)
        self.dropout = nn.Dropout(p=dropout)
        self.layer_stack = nn.ModuleList([DecoderLayer(dropout) for _ in range(1)])
        self.layer_norm = nn.LayerNorm(D, eps=1e-6)
        self.scale_emb = scale_emb

    def forward(self, trg, mask, enc, src_mask):
        x = self.trg_word_emb(trg)
        if self.scale_emb:
            x *= D**0.5
        x = self.layer_norm(self.dropout(self.position_enc(x)))
        for layer in self.layer_stack:
            x, _, _ = layer(x, enc, slf_mask=mask, enc_mask=src_mask)
        return (x,)


def get_pad_mask(seq, pad_idx):
    return (seq != pad_idx).unsqueeze(-2)


def get_subsequent_mask(seq):
    _, len_s = seq.size()
    return (1 - torch.triu(torch.ones((1, len_s, len_s), device=seq.device), diagonal=1)).bool()


class Transformer(nn.Module):
    def __init__(self, dropout=0.1, share_prj=True, share_emb=True, scale_emb_or_prj="emb"):
        super().__init__()
        scale_emb = scale_emb_or_prj == "emb" if share_prj else False
        self.scale_prj = scale_emb_or_prj == "prj" if share_prj else False
        self.encoder = Encoder(dropout, scale_emb)
        self.decoder = Decoder(dropout, scale_emb)
        self.trg_word_prj = nn.Linear(D, VOCAB, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        if share_prj:
            self.trg_word_prj.weight = self.decoder.trg_word_emb.weight
        if share_emb:
            self.encoder.src_word_emb.weight = self.decoder.trg_word_emb.weight

    def forward(self, src, trg):
        src_mask = get_pad_mask(src, PAD)
        trg_mask = get_pad_mask(trg, PAD) & get_subsequent_mask(trg)
        enc, *_ = self.encoder(src, src_mask)
        dec, *_ = self.decoder(trg, trg_mask, enc, src_mask)
        logit = self.trg_word_prj(dec)
        if self.scale_prj:
            logit *= D**-0.5
        return logit.view(-1, logit.size(2))


class ScheduledOptim:
    def __init__(self, optimizer, lr_mul, d_model, n_warmup_steps):
        self._optimizer = optimizer
        self.lr_mul = lr_mul
        self.d_model = d_model
        self.n_warmup_steps = n_warmup_steps
        self.n_steps = 0

    def step_and_update_lr(self):
        self._update_learning_rate()
        self._optimizer.step()

    def zero_grad(self):
        self._optimizer.zero_grad()

    def _get_lr_scale(self):
        d_model = self.d_model
        n_steps, n_warmup_steps = self.n_steps, self.n_warmup_steps
        return (d_model**-0.5) * min(n_steps ** (-0.5), n_steps * n_warmup_steps ** (-1.5))

    def _update_learning_rate(self):
        self.n_steps += 1
        lr = self.lr_mul * self._get_lr_scale()
        for param_group in self._optimizer.param_groups:
            param_group["lr"] = lr


def cal_performance(pred, gold, trg_pad_idx, smoothing=False, eps=0.1):
    loss = cal_loss(pred, gold, trg_pad_idx, smoothing=smoothing, eps=eps)
    pred = pred.max(1)[1]
    gold = gold.contiguous().view(-1)
    non_pad_mask = gold.ne(trg_pad_idx)
    n_correct = pred.eq(gold).masked_select(non_pad_mask).sum().item()
    n_word = non_pad_mask.sum().item()
    return loss, n_correct, n_word


def cal_loss(pred, gold, trg_pad_idx, smoothing=False, eps=0.1):
    gold = gold.contiguous().view(-1)
    if smoothing:
        n_class = pred.size(1)
        one_hot = torch.zeros_like(pred).scatter(1, gold.view(-1, 1), 1)
        one_hot = one_hot * (1 - eps) + (1 - one_hot) * eps / (n_class - 1)
        log_prb = F.log_softmax(pred, dim=1)
        non_pad_mask = gold.ne(trg_pad_idx)
        loss = -(one_hot * log_prb).sum(dim=1)
        loss = loss.masked_select(non_pad_mask).sum()
    else:
        loss = F.cross_entropy(pred, gold, ignore_index=trg_pad_idx, reduction="sum")
    return loss


def run_epoch(model, loader, optimizer, smoothing, eps, training):
    model.train(training)
    total_loss, n_word_total, n_word_correct = 0, 0, 0
    with torch.set_grad_enabled(training):
        for src, trg in loader:
            gold = trg[:, 1:].contiguous().view(-1)
            trg_seq = trg[:, :-1]
            if training:
                optimizer.zero_grad()
            pred = model(src, trg_seq)
            loss, n_correct, n_word = cal_performance(pred, gold, PAD, smoothing=smoothing, eps=eps)
            if training:
                loss.backward()
                optimizer.step_and_update_lr()
            n_word_total += n_word
            n_word_correct += n_correct
            total_loss += loss.item()
    return total_loss / n_word_total, n_word_correct / n_word_total


@loop(lr_mul=hw.uniform(0.1, 0.5), dropout=hw.uniform(0.05, 0.4))
def translation(trial):
    transformer = trial.prepare_model(Transformer(trial.config["dropout"]))
    optimizer = ScheduledOptim(
        trial.prepare_optimizer(optim.Adam, transformer.parameters(), betas=(0.9, 0.98), eps=1e-09),
        trial.config["lr_mul"], D, n_warmup_steps=20,
    )  # fmt: skip
    training_data = trial.prepare_data_loader(sentences(128, 0), batch_size=16, shuffle=True)
    validation_data = trial.prepare_data_loader(sentences(48, 1), batch_size=16)
    for epoch_i in trial.epochs(4):
        train_loss, train_accu = run_epoch(transformer, training_data, optimizer, True, 0.1, True)
        valid_loss, valid_accu = run_epoch(transformer, validation_data, None, False, 0.1, False)
        print(f"[ Epoch {epoch_i} ] ppl: {math.exp(min(train_loss, 100)):8.5f}, accuracy: {100 * train_accu:3.3f} %")
        trial.report(loss=valid_loss, train_loss=train_loss, accuracy=valid_accu)
