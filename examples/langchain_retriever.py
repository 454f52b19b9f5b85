"""LangChain: memories as documents, in a chain like any other retriever."""

from __future__ import annotations

from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from meritory import Memory
from meritory.integrations.langchain import MeritoryRetriever


def main(memory: Memory) -> str:
    """Answers a question out of memory."""
    memory.remember("The billing service talks to Stripe through the payments queue")
    retriever = MeritoryRetriever(memory=memory, limit=3)
    prompt = ChatPromptTemplate.from_template("Known:\n{known}\n\nQuestion: {question}")
    # A scripted model; put your own chat model here.
    model = FakeListChatModel(responses=["Through the payments queue."])
    asked = {
        "known": retriever | (lambda found: "\n".join(one.page_content for one in found)),
        "question": RunnablePassthrough(),
    }
    answer = (asked | prompt | model | StrOutputParser()).invoke("How does billing reach Stripe?")
    print(answer)
    return answer


if __name__ == "__main__":
    with Memory() as own:
        main(own)
