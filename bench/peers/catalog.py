"""Which systems are compared, with their pinned versions, and which are not, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ADAPTERS = Path(__file__).resolve().parent / "adapters"
PRODUCT = "meritory"
CONTROL = "random"
VECTORS = "MiniLM vectors"


@dataclass(frozen=True, slots=True)
class Peer:
    """One row: how to install it, which adapter runs it, and what a reader must know of it."""

    name: str
    title: str
    adapter: str
    # Pinned; none means that it runs in the environment of the bench itself.
    requirements: tuple[str, ...]
    licence: str
    # The documented calls, and settings that are not the default.
    calls: str
    settings: str = ""
    # What it gets besides the text; the product embeds by itself.
    given: str = VECTORS
    variant: str = ""
    # It loads extensions into SQLite, which many builds of Python cannot.
    needs_extensions: bool = False
    keeps_files: bool = True

    @property
    def environment(self) -> str:
        """Return the name of its environment, which variants share."""
        return self.adapter

    def path(self) -> Path:
        """Return the file of its adapter."""
        return ADAPTERS / f"{self.adapter}.py"


_MEM0 = ("mem0ai==2.2.1", "qdrant-client==1.20.0", "langchain==0.3.30")
_MCP = ("mcp-memory-service==12.2.0", "sqlite-vec==0.1.9")

PEERS = (
    Peer(
        PRODUCT,
        "Meritory",
        "meritory",
        (),
        "Apache-2.0",
        "`remember_many`, `remember`, `recall`",
        'defaults; `on_similar="keep"` when storing many, so that each text stays a memory',
        given="session, turn and date of each text; at a question of RealMem its date",
    ),
    Peer(
        "chroma",
        "Chroma",
        "chroma",
        ("chromadb==1.5.9",),
        "Apache-2.0",
        "`PersistentClient`, `collection.add`, `collection.query`",
        "telemetry off",
    ),
    Peer(
        "lancedb",
        "LanceDB, hybrid",
        "lancedb",
        ("lancedb==0.40.0",),
        "Apache-2.0",
        '`create_fts_index`, `search(query_type="hybrid")`',
        "its default fusion (RRF); `optimize()` after every 20 changes, as its guide says; old "
        "versions of the table stay on disk, as by default",
    ),
    Peer(
        "txtai",
        "txtai, hybrid",
        "txtai",
        ("txtai==9.14.0", "torch==2.13.0"),
        "Apache-2.0",
        "`Embeddings(hybrid=True, content=True)`, `index`, `upsert`, `search`",
        "external vectors",
    ),
    Peer(
        "mem0",
        "mem0",
        "mem0",
        _MEM0,
        "Apache-2.0",
        "`Memory.add(infer=False)`, `Memory.search`",
        "local Qdrant, vectors through its LangChain embedder, telemetry off; its keyword search, "
        "lemmatizer and entity boosts need extras and downloads and are off",
    ),
    Peer(
        "mem0-keywords",
        "mem0, keywords",
        "mem0",
        (*_MEM0, "fastembed==0.9.1"),
        "Apache-2.0",
        "`Memory.add(infer=False)`, `Memory.search`",
        "the same with its BM25 on, with stop words handed in; lemmatizer and entity boosts off",
        variant="keywords",
    ),
    Peer(
        "mcp-memory-service",
        "mcp-memory-service",
        "mcp_memory",
        _MCP,
        "Apache-2.0",
        "`store_batch`, `store`, `retrieve` of its SQLite storage",
        "the encoder is replaced by the vectors handed in; `store` looks for similar memories of "
        "the last day first, as by default",
        needs_extensions=True,
    ),
    Peer(
        "mcp-memory-service-hybrid",
        "mcp-memory-service, hybrid",
        "mcp_memory",
        _MCP,
        "Apache-2.0",
        "`store_batch`, `store`, `retrieve_hybrid` of its SQLite storage",
        "the encoder is replaced by the vectors handed in; `store` looks for similar memories of "
        "the last day first, as by default",
        variant="hybrid",
        needs_extensions=True,
    ),
    Peer(
        "langgraph",
        "LangGraph InMemoryStore",
        "langgraph",
        ("langgraph==1.2.22",),
        "MIT",
        "`InMemoryStore(index=...)`, `put`, `search`",
        "one `put` for each memory; it writes nothing to disk",
        keeps_files=False,
    ),
    Peer(
        CONTROL,
        "random order (control)",
        "random_ids",
        (),
        "-",
        "returns what it stored in a random order",
        given="nothing",
        keeps_files=False,
    ),
)

# Looked at and left out. The reason is what happened when it was tried offline.
LEFT_OUT = {
    "Hindsight 1.1.0": (
        "2 GB and a PostgreSQL server that refuses to start as root; its cross-encoder needs a "
        "model hub, and what remains without it is not what its makers ship"
    ),
    "cognee 1.6.5": "permanent memory fetches a vocabulary from the network at the first write",
    "basic-memory 0.23.2": "its search fails without SQLite extensions; a call takes 14 s or more",
    "memoripy 4": "from source 4 s a query at 85 memories; on PyPI it needs a language model",
    "A-MEM 0.2.6": "a language model writes every memory; installing it takes 6 GB",
    "Graphiti 0.31": "needs a graph server and a language model",
    "LangMem 0.0.30": "needs a language model to write; its store is the LangGraph row",
    "Letta, claude-mem, supermemory, agentmemory": (
        "need a language model, a hosted account or a program outside PyPI"
    ),
}


def chosen(names: str) -> list[Peer]:
    """Return the rows that a comma-separated list names, all when it is empty."""
    wanted = [name for name in names.split(",") if name]
    known = {peer.name: peer for peer in PEERS}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"unknown peer {unknown[0]!r}: use {', '.join(known)}")
    return [known[name] for name in wanted] or list(PEERS)
