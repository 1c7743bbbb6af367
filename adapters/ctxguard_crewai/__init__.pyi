from ctxguard_crewai.guard import LLMCall as LLMCall
from ctxguard_crewai.guard import guarded_llm as guarded_llm
from ctxguard_crewai.messages import CrewAIAdapter as CrewAIAdapter
