"""Pictures through HTTP: what the demo model sees in drawn scenes, in every kind of file, in conversations, with drafts and
without, beside text, and what does not get that far.
"""
import concurrent.futures
import io
import json
import struct
import time
import urllib.error
import zlib
from pathlib import Path

import numpy as np
import pytest
import synth
import vis
from conftest import Server
from drawn import TASKS, asking, encoded, is_right, part, scenes, text
from PIL import Image

def answer_to(server, parts, **fields):
    return server.chat(asking(*parts), reasoning_effort="none", max_tokens=200, **fields)["message"]["content"] or ""


def test_the_server_says_that_it_sees(server):
    props = server.get("/props")
    assert props["modalities"]["vision"] and props["vision"]["token_px"] == 32
    assert "image" in server.get("/v1/models")["data"][0]["architecture"]["input_modalities"]


def test_two_hundred_drawn_pictures_are_seen(server):
    asked = list(scenes(200, seed=1))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda q: answer_to(server, [part(encoded(q[1])), text(q[2])]), asked))
    right = {task: [] for task in TASKS}
    for (task, _, _, answer), words in zip(asked, said):
        right[task].append(is_right(task, words, answer))
    shares = {task: f"{sum(found)}/{len(found)}" for task, found in right.items()}
    total = sum(sum(found) for found in right.values())
    print(f"\n{total} of {len(asked)} right: {shares}")
    assert total >= 0.95 * len(asked), shares


@pytest.mark.parametrize(
    "kind, options",
    [
        ("PNG", {}),
        ("JPEG", {"quality": 95, "subsampling": 0}),
        ("JPEG", {"quality": 85, "progressive": True}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"quality": 90}),
        ("GIF", {}),
        ("BMP", {}),
    ],
)
def test_the_kind_of_file_does_not_matter(server, kind, options):
    asked = list(scenes(21, seed=2, tasks=["color", "shape", "background"]))
    right = sum(
        # The label says PNG throughout: the bytes decide.
        is_right(task, answer_to(server, [part(encoded(pixels, kind, **options)), text(question)]), answer)
        for task, pixels, question, answer in asked
    )
    assert right >= 19, f"{right} of {len(asked)} as {kind} {options}"


def test_files_without_loss_give_one_answer(server):
    for _, pixels, question, _ in scenes(6, seed=3):
        picture = Image.fromarray(pixels)
        files = [encoded(pixels), encoded(pixels, "WEBP", lossless=True), encoded(pixels, "BMP")]
        clear = io.BytesIO()
        picture.convert("RGBA").save(clear, "PNG")
        answers = {answer_to(server, [part(data), text(question)]) for data in files + [clear.getvalue()]}
        assert len(answers) == 1, answers


def test_an_animation_shows_its_first_picture(server):
    (_, first, question, answer), (_, second, _, _) = list(scenes(2, seed=4, tasks=["background"]))
    # Frames of one animation have one size.
    second = np.asarray(Image.fromarray(second).resize((first.shape[1], first.shape[0])))
    for kind, options in [("GIF", {}), ("WEBP", {"lossless": True})]:
        data = encoded(first, kind, save_all=True, append_images=[Image.fromarray(second)], duration=50, **options)
        assert is_right("background", answer_to(server, [part(data), text(question)]), answer), kind


def test_a_turned_photograph_is_turned_back(server):
    pixels = next(iter(scenes(1, seed=5, tasks=["where"])))
    turned = Image.fromarray(pixels[1]).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    turned.save(out, "JPEG", quality=95, subsampling=0, exif=exif)
    assert is_right("where", answer_to(server, [part(out.getvalue()), text(pixels[2])]), pixels[3])


def test_several_turns_about_pictures(server):
    right = total = 0
    for seed in range(8):
        rng = np.random.default_rng(100 + seed)
        questions = vis.QA(rng, synth.NOUN)
        messages = []
        for _ in range(2):
            scene = questions.scene("single", small=True)
            for i, task in enumerate(["color", "background"]):
                question, _, answer = questions.ask(scene, task)
                parts = [part(encoded(vis.draw(scene)))] if i == 0 else []
                messages.append({"role": "user", "content": parts + [text(question)]})
                said = server.chat(messages, reasoning_effort="none", max_tokens=60)["message"]["content"]
                messages.append({"role": "assistant", "content": said})
                # Later questions are about the newest picture.
                right += is_right(task, said, answer)
                total += 1
    print(f"\n{right} of {total} right over turns")
    assert right >= 0.85 * total, f"{right} of {total}"


def test_another_question_goes_on_from_behind_the_picture(server):
    _, pixels, _, _ = next(iter(scenes(1, seed=6, tasks=["where"])))
    large = np.asarray(Image.fromarray(pixels).resize((512, 512)))
    body = {"temperature": 0, "max_tokens": 20, "reasoning_effort": "none"}
    ask = lambda question: server.post(
        "/v1/chat/completions", {**body, "messages": asking(part(encoded(large)), text(question))}
    )["usage"]["prompt_tokens_details"]
    first, second = ask("Where is the shape?"), ask("What color is the background?")
    assert first["image_tokens"] == second["image_tokens"] == 256
    assert second["cached_tokens"] >= 256, second


def test_drafts_change_nothing_of_what_is_seen(server):
    off = {"speculative": {"n_max": 0, "lookup": False}}
    for _, pixels, question, _ in scenes(14, seed=7):
        parts = [part(encoded(pixels)), text(question)]
        drafted, plain = (answer_to(server, parts, cache_prompt=False, **fields) for fields in ({}, off))
        assert drafted == plain, question


def test_drafts_are_accepted_behind_a_picture():
    """With all drafts that are allowed: how many pay is a matter of the machine."""
    server = Server(
        "--profile", "demo", "--cache-type-k", "bf16", "--cache-type-v", "bf16", "--speculative-adaptive", "false",
        "--lookup", "false",
    )
    tokens = accepted = 0
    for _, pixels, question, _ in scenes(21, seed=8):
        body = {"messages": asking(part(encoded(pixels)), text(question)), "temperature": 0, "reasoning_effort": "none"}
        timings = server.post("/v1/chat/completions", {**body, "max_tokens": 200})["timings"]
        tokens += timings["predicted_n"]
        accepted += timings.get("draft_n_accepted", 0)
    assert server.stop() == 0
    # What is not drafted is the one token that each step gives without.
    steps = tokens - accepted
    print(f"\n{tokens / steps:.2f} tokens a step")
    assert tokens >= 3 * steps, f"{tokens} tokens in {steps} steps"


def test_text_and_pictures_side_by_side(server):
    asked = list(scenes(24, seed=9, tasks=["color", "background"]))

    def one(i):
        if i % 2:
            return "seven" in server.chat("Write the number 7 as a word.", reasoning_effort="none")["message"]["content"]
        task, pixels, question, answer = asked[i]
        return is_right(task, answer_to(server, [part(encoded(pixels)), text(question)]), answer)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        right = list(pool.map(one, range(24)))
    assert sum(right) >= 22, right


def test_the_same_question_about_other_pictures_is_answered_anew(server):
    """Field report: a cached answer about the picture before."""
    said = []
    for color in ("red", "green", "blue", "yellow"):
        pixels = np.empty((96, 96, 3), np.uint8)
        pixels[:] = vis.BGS[color]
        said.append((color, answer_to(server, [part(encoded(pixels)), text("What color is the background?")])))
    assert all(color in words for color, words in said), said


def test_low_detail_counts_fewer_tokens(server):
    pixels = np.full((1024, 1024, 3), 90, np.uint8)
    counts = {}
    for detail in ("low", "high"):
        body = {"messages": asking(part(encoded(pixels), detail=detail), text("x")), "max_tokens": 1}
        usage = server.post("/v1/chat/completions", body)["usage"]
        counts[detail] = usage["prompt_tokens_details"]["image_tokens"]
    assert counts == {"low": 256, "high": 1024}


def refused(server, *parts):
    body = {"messages": asking(*parts), "max_tokens": 1}
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.post("/v1/chat/completions", body)
    return caught.value.code, json.load(caught.value)["error"]


def bomb(width, height):
    """A PNG of a few bytes with a valid header of any size."""
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def dense(side):
    """All of it zero: as many pixels as are taken, in a few kilobytes."""
    return encoded(np.zeros((side, side, 3), np.uint8), compress_level=9)


def reset_peak(server):
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def peak_mib(server):
    """The most memory that the server held since."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


@pytest.mark.parametrize(
    "name, data, code",
    [
        ("20000 x 20000 in a hundred bytes", lambda: bomb(20_000, 20_000), "limit_exceeded"),
        ("7000 x 7000 without data", lambda: bomb(7000, 7000), "invalid_image"),
        ("40 MB of zeros", lambda: bytes(40 << 20), "limit_exceeded"),
        ("a cut JPEG", lambda: encoded(np.zeros((2000, 2000, 3), np.uint8), "JPEG")[:-100], "invalid_image"),
        ("HEIC", lambda: b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "invalid_image"),
    ],
)
def test_bombs_are_refused_at_once(server, name, data, code):
    picture = part(data())
    reset_peak(server)
    before = peak_mib(server)
    started = time.monotonic()
    status, error = refused(server, picture)
    print(f"\n{name}: {(time.monotonic() - started) * 1000:.0f} ms")
    assert (status, error["code"]) == (400, code), error
    assert error["param"] == "messages[0].content[0].image_url.url"
    # The request itself is up to 54 MB of base64; 400 million pixels would be 1,200 MB.
    assert peak_mib(server) < before + 400, f"{name}: from {before} to {peak_mib(server)} MiB"


def test_a_large_picture_that_is_taken_is_answered(server):
    started = time.monotonic()
    body = {"messages": asking(part(dense(7000), detail="low"), text("What color is the background?")), "max_tokens": 20}
    reply = server.post("/v1/chat/completions", {**body, "temperature": 0, "reasoning_effort": "none"})
    print(f"\n49 million pixels: {time.monotonic() - started:.2f} s")
    assert reply["usage"]["prompt_tokens_details"]["image_tokens"] == 256
    assert "black" in reply["choices"][0]["message"]["content"]


def test_addresses_are_closed_by_default(server):
    for url in ("http://169.254.169.254/", "https://example.org/a.png", "file:///etc/passwd"):
        status, error = refused(server, {"type": "image_url", "image_url": {"url": url}})
        assert (status, error["code"]) == (400, "image_not_fetched"), error


def test_twelve_turns_with_four_pictures_process_what_is_new_also_after_a_restart(tmp_path):
    args = ["--profile", "demo", "--cache-type-k", "bf16", "--cache-type-v", "bf16", "--cache-dir", str(tmp_path)]
    server = Server(*args)
    questions = vis.QA(np.random.default_rng(11), synth.NOUN)
    messages, before, rows = [], 0, []
    for turn in range(12):
        if turn % 3 == 0:
            scene = questions.scene("single", small=True)
        question, _, _ = questions.ask(scene, ["color", "background", "shape"][turn % 3])
        parts = [part(encoded(vis.draw(scene)))] if turn % 3 == 0 else []
        messages.append({"role": "user", "content": parts + [text(question)]})
        if turn == 7:
            assert server.stop() == 0
            server = Server(*args)
        body = {"messages": messages, "temperature": 0, "max_tokens": 40, "reasoning_effort": "none"}
        reply = server.post("/v1/chat/completions", body)
        usage = reply["usage"]
        processed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        # The prompt before is known, and so is its answer, up to where the template writes it otherwise.
        rows.append((turn, usage["prompt_tokens"] - before, processed, reply["timings"].get("encode_n", 0)))
        before = usage["prompt_tokens"]
        messages.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
    assert server.stop() == 0
    print("\nturn, new, processed, encoded:", rows)
    # A picture is encoded once, in its own turn.
    assert [encoded for *_, encoded in rows] == [1, 0, 0] * 4, rows
    new, processed = (sum(column) for column in list(zip(*rows))[1:3])
    assert processed <= 1.15 * new + 12, rows


@pytest.mark.parametrize("width, height", [(1, 1), (1, 4000), (4000, 1), (16, 16000), (16000, 16), (3, 2000)])
def test_thin_and_tiny_pictures_are_answered(server, width, height):
    pixels = np.full((height, width, 3), 200, np.uint8)
    body = {"messages": asking(part(encoded(pixels)), text("What color is the background?")), "max_tokens": 10}
    started = time.monotonic()
    usage = server.post("/v1/chat/completions", body)["usage"]
    tokens = usage["prompt_tokens_details"]["image_tokens"]
    print(f"\n{width} x {height}: {tokens} tokens, {time.monotonic() - started:.2f} s")
    assert 8 <= tokens <= 4096


def test_a_picture_that_is_too_long_is_refused_by_name(server):
    status, error = refused(server, part(encoded(np.zeros((4, 17000, 3), np.uint8))))
    assert (status, error["code"]) == (400, "limit_exceeded") and "images.max_side" in error["message"], error
