"""LangChain: memories as documents."""

from __future__ import annotations

import asyncio
from typing import Any

from meritory.domain.memory import MemoryRecord
from meritory.integrations.core import missing

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise missing("langchain", error) from error


class MeritoryRetriever(BaseRetriever):
    """Retrieve the memories that answer a query.

    With a `session` a query counts as its prompt: memories that were shown are left out, and the
    metadata of each document has its handle and the code for ratings.
    """

    memory: Any
    session: Any = None
    limit: int | None = None
    # As `Memory.recall` takes them: min_score, kind, tags, projects, since, until, metadata.
    filters: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self._retrieve(query)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return await asyncio.to_thread(self._retrieve, query)

    def _retrieve(self, query: str) -> list[Document]:
        if self.session is None:
            hits = self.memory.recall(query, self.limit, **self.filters)
            return [_document(hit.memory, score=hit.score) for hit in hits]
        served = self.session.prompt(query)
        return [
            _document(shown.memory, handle=shown.handle, injection=served.injection)
            for shown in served.memories[: self.limit]
        ]


def _document(record: MemoryRecord, **more: object) -> Document:
    metadata = {
        "kind": record.kind,
        "project": record.project,
        "agent": record.agent,
        "tags": list(record.tags),
        "metadata": dict(record.metadata),
        "trust": record.trust,
        "created_at": record.created_at.isoformat(),
        **more,
    }
    return Document(page_content=record.content, id=record.id, metadata=metadata)
