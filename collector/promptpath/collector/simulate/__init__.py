"""A simulator of whole serving stacks with known truth: `promptpath simulate`."""

from promptpath.collector.simulate.run import Result, simulate
from promptpath.collector.simulate.scenario import Regression, Scenario, ScenarioError
from promptpath.collector.simulate.sinks import HttpSink, JsonFile, ProtobufFile, SinkError

__all__ = [
    "HttpSink",
    "JsonFile",
    "ProtobufFile",
    "Regression",
    "Result",
    "Scenario",
    "ScenarioError",
    "SinkError",
    "simulate",
]
