"""That the figures of the README are those of the results of the benchmark; `make tables` writes them."""

import pytest

from docs.measured import RESULTS, SERVERS, rows

RUN = """# Results

## Targets

| case | measured |
| --- | ---: |
| B. | 1 |

## A. Long-polling

| server | CPU µs per delivery | p50 ms |
| --- | ---: | ---: |
| Crewel | 14.5 (13.8 to 17.5) | 0.66 |
| Faye | 52.5 (50.5 to 57.4) | 2.73 |

## B. Long-polling with acknowledgement

| server | CPU µs per delivery | p50 ms | p99 ms |
| --- | ---: | ---: | ---: |
| CometD Java | 49.8 (47.6 to 50.1) | 2.37 | 34.3 |
| Crewel | 18.2 (16.1 to 20.4) | 0.70 | 1.45 |

## C. WebSocket

| server | CPU µs per delivery |
| --- | ---: |
| Crewel | 11.0 (10.0 to 14.4) |

## D. CometD's reference shape

| server | sustained deliveries/s | p99 ms |
| --- | ---: | ---: |
| Crewel | 50,032 | 1.57 |

## WebSockets beside others

| what | Crewel | others |
| --- | ---: | --- |
| an idle client | 1 (1 to 1) | socket.io 2 (2 to 2) |
| plain fan-out | 14.0 (12.5 to 15.6) | the floor 10.0 (9.8 to 10.2), socket.io 1,028.3 (25.4 to 31.2), Faye 37.5 (37 to 38) |
"""


def test_each_figure_is_that_of_its_case_and_server() -> None:
    assert [line[1:] for line in rows(RUN)] == [
        ("14.5", "", "52.5", "", "", "", "", ""),
        ("18.2", "49.8", "", "", "", "", "", ""),
        ("1.45", "34.3", "", "", "", "", "", ""),
        ("50,032", "", "", "", "", "", "", ""),
        ("11.0", "", "", "", "", "", "", ""),
        ("14.0", "", "37.5", "", "1,028.3", "", "", ""),
    ]


def test_a_run_without_crewel_is_no_source_of_figures() -> None:
    with pytest.raises(KeyError):
        list(rows(RUN.replace("| Crewel | 50,032", "| Faye | 50,032")))


def test_each_server_that_the_results_name_has_a_figure_somewhere() -> None:
    results = RESULTS.read_text("utf-8")
    _, *columns = zip(*rows(results), strict=True)
    assert [
        server for server, figures in zip(SERVERS, columns, strict=True) if server in results and not any(figures)
    ] == []
