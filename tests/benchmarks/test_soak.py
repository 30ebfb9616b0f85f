"""The soak reads its meters after every round, and would see a leak."""

from dataclasses import replace

from benchmarks.soak import Reading, plot, run_soak, summarise_readings


def test_a_short_soak(tmp_path):
    readings = run_soak(3, tmp_path / "run")
    assert [reading.round for reading in readings] == [1, 2, 3]
    assert all(r.memory > 50 and r.files >= 3 and r.seconds > 0 and r.yardstick > 0 for r in readings)
    assert (tmp_path / "run" / "summary.json").exists()


def test_what_grows_is_seen(tmp_path):
    flat = [Reading(k, 400.0, 5, 0.6, 0.2, k % 10 == 0) for k in range(1, 201)]
    grown = [replace(r, memory=400.0 + r.round, files=r.round, seconds=0.6 + r.round / 100) for r in flat]
    calm, leak = summarise_readings(flat), summarise_readings(grown)
    assert calm["MB resident, at last"] == calm["MB resident, at first"]
    assert calm["open files, most"] == calm["open files, fewest"]
    assert calm["yardsticks a round, second half"] == calm["yardsticks a round, first half"]
    assert leak["MB resident, at last"] - leak["MB resident, at first"] == 80
    assert leak["open files, most"] == 200
    assert leak["yardsticks a round, second half"] > 1.1 * leak["yardsticks a round, first half"]
    plot(flat, calm, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
