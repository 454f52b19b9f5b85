"""LangGraph: the long-term store of a graph, shared by all its threads."""

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from meritory import Memory
from meritory.integrations.langgraph import MeritoryStore


class State(TypedDict, total=False):
    """What flows through the graph."""

    user: str
    said: str
    answer: str


def learn(state: State, runtime: Runtime) -> State:
    """Keeps what the user said."""
    store: Any = runtime.store
    store.put((state["user"], "facts"), "food", {"memory": state["said"]})
    return {}


def answer(state: State, runtime: Runtime) -> State:
    """Finds it again; a real graph would hand it to a model."""
    store: Any = runtime.store
    found = store.search((state["user"],), query="what does the user like to eat?")
    return {"answer": "; ".join(item.value["memory"] for item in found)}


def main(memory: Memory) -> str:
    """Runs the graph once."""
    graph = StateGraph(State)
    graph.add_node(learn)
    graph.add_node("reply", answer)
    graph.add_edge(START, "learn")
    graph.add_edge("learn", "reply")
    graph.add_edge("reply", END)
    compiled = graph.compile(store=MeritoryStore(memory))
    result = compiled.invoke({"user": "ann", "said": "Ann likes to eat ramen"})
    print(result["answer"])
    return str(result["answer"])


if __name__ == "__main__":
    with Memory() as own:
        main(own)
