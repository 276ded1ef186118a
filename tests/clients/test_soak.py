"""The memory soak as a test."""
import soak


def test_two_thousand_prompts_leave_memory_flat():
    assert soak.main(2000) == 0
