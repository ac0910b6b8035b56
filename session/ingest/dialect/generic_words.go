package dialect

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// field is what a name of an attribute, or of a member of JSON, means to the generic reading.
type field uint8

const (
	fieldNone field = iota
	fieldInput
	fieldPrompt // an input that nothing but a model or an agent has
	fieldOutput
	fieldAnswer // an output that nothing but a model or an agent has
	fieldMessages
	fieldSystem
	fieldModel
	fieldResponseModel
	fieldProvider
	fieldAgent
	fieldKind
	fieldToolName
	fieldCallID
	fieldToolInput
	fieldToolOutput
	fieldTools
	fieldInputTokens
	fieldOutputTokens
	fieldTotalTokens
	fieldCacheRead
	fieldCacheWrite
	fieldReasoningTokens
	fieldUsage
	fieldCost
	fieldTemperature
	fieldFinish
	fieldResponseID
	fieldReasoning
	fieldSession
	fieldUser
	fieldError
	fieldRole
	fieldContent
)

// names are the last words of names, in lower case and without separators, and what they mean. What
// is before them is anybody's prefix: acme.llm.inputMessages, acme_prompt and agent:final_answer
// are read by their ends. The longest end counts, so that max_tokens is no count of tokens.
var names = byWord(map[field]string{
	fieldInput: `input inputs inputvalue inputtext inputcontent inputdata inputjson inputpayload query request
		requestbody requestcontent payload`,
	fieldOutput: `outputjson outputpayload output outputs outputvalue outputcontent outputdata response responses
		responsetext responsecontent responsebody responsemessage responsemessages result results`,
	fieldPrompt: `prompt prompts prompttext promptcontent promptvalue question userinput usermessage usermessages
		userquery usertext userquestion userrequest userutterance utterance inputmessage`,
	fieldMessages: `messages inputmessages promptmessages chathistory requestmessages llmmessages`,
	fieldAnswer: `outputtext outputmessages outputmessage completion completions completiontext completioncontent
		completionmessage answer finalanswer finaloutput reply generation generations generatedtext assistantmessage
		assistantresponse assistanttext assistantreply agentresponse modelresponse llmresponse llmoutput modeloutput
		botresponse botmessage`,
	fieldNone: `system toolid toolparameters maxtokens maxoutputtokens maxinputtokens maxcompletiontokens`,
	fieldSystem: `systemprompt systemmessage systeminstruction systeminstructions instructions agentinstructions
		preamble`,
	fieldModel:         `model modelname modelid requestmodel llmmodel`,
	fieldResponseModel: `responsemodel responsemodelname`,
	fieldProvider:      `modelprovider llmprovider providername provider vendor llmsystem`,
	fieldAgent:         `agentname agent assistantname botname`,
	fieldKind:          `kind type spankind spantype runtype operationname operation`,
	fieldToolName:      `toolname tool functionname tooltitle toolcallname`,
	fieldCallID:        `callid toolcallid tooluseid functioncallid`,
	fieldToolInput: `toolinput toolargs toolarguments functionarguments functionargs callarguments callargs arguments
		args toolparams toolcallarguments`,
	fieldToolOutput: `tooloutput toolresult toolresponse functionresult functionoutput callresult functionresponse
		observation`,
	fieldTools: `tools toolcatalog tooldefinitions availabletools functions`,
	fieldInputTokens: `prompttokens inputtokens tokensinput tokensprompt tokensin inputtokencount prompttokencount
		tokencountprompt tokencountinput usageinput usageprompt numinputtokens`,
	fieldOutputTokens: `completiontokens outputtokens tokensoutput tokenscompletion tokensout outputtokencount
		completiontokencount candidatestokencount tokencountcompletion tokencountoutput usageoutput usagecompletion
		generatedtokens numoutputtokens`,
	fieldTotalTokens: `totaltokens tokenstotal totaltokencount usagetotal`,
	fieldCacheRead: `cachedtokens cachereadtokens cachedinputtokens cachereadinputtokens inputcachedtokens cacheread
		cachedcontenttokencount cachedprompttokens cachehittokens`,
	fieldCacheWrite: `cachewritetokens cachecreationtokens cachecreationinputtokens cachewrite cachewriteinputtokens
		cachecreation`,
	fieldReasoningTokens: `reasoningtokens outputreasoningtokens reasoningoutputtokens thinkingtokens
		thoughtstokencount tokensreasoning`,
	fieldUsage:       `usage usagedetails tokenusage usagemetadata tokencounts llmusage metrics`,
	fieldCost:        `costusd totalcost costtotal totalcostusd usagecost llmcost`,
	fieldTemperature: `temperature`,
	fieldFinish:      `finishreason finishreasons stopreason`,
	fieldResponseID:  `responseid completionid generationid`,
	fieldReasoning:   `reasoning reasoningtext reasoningcontent thinking thoughts`,
	fieldSession:     `sessionid conversationid threadid chatid dialogid dialogueid chatsessionid`,
	fieldUser:        `userid enduserid`,
	fieldError:       `errormessage statusmessage`,
	fieldRole:        `role messagerole`,
	fieldContent:     `content messagecontent text messagetext`,
})

// ordinaryFamilies are the first words of the attributes of programs other than agents: what is
// below them is not part of a conversation, whatever its last word.
const ordinaryFamilies = `http url db rpc messaging net network server client source destination k8s
	container faas aws azure az cloud host process thread code exception graphql browser user_agent peer dns tls
	feature_flag cassandra mongodb redis elasticsearch opensearch kafka rabbitmq signalr aspnetcore dotnet jvm nodejs
	v8js system otel telemetry service cicd vcs deployment device disk geo log os webengine grpc sql istio envoy nginx
	spring servlet express fastify nextjs next django flask rails celery sidekiq job cron pod node busy_ns idle_ns
	prisma hikaricp jdbc s3 sqs dynamodb kubernetes sentry datadog dd ot android ios cpu file test hw zipkin jaeger`

// family returns the first word of a key, or "" when nothing parts it from a rest.
func family(key string) string {
	if i := strings.IndexAny(key, ".:"); i > 0 {
		return key[:i]
	}
	return ""
}

// isOrdinary reports whether a key is of a program that is no agent. A key with an underscore
// belongs to the family before that too: db_statement, http_request.
func isOrdinary(key string) bool {
	if f := family(key); f != "" {
		return families[f] == MarkOrdinary
	}
	if i := strings.IndexByte(key, '_'); i > 0 {
		switch key[:i] {
		case "http", "db", "sql", "rpc", "grpc", "url", "net", "k8s", "aws", "kafka", "redis":
			return true
		}
	}
	return false
}

// wordBytes is how much of a name counts: its end.
const wordBytes = 96

// words is a name in lower case without separators, and where its words begin. Making one allocates
// nothing, for every name is looked at of what no dialect knows.
type words struct {
	text   [wordBytes]byte
	begins [wordBytes]uint8
	n, len int
}

func (w *words) read(name string) {
	if len(name) > wordBytes {
		name = name[len(name)-wordBytes:]
	}
	before := byte('.')
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '.' || c == ':' || c == '_' || c == '-' || c == '/' || c == ' ':
			before = '.'
			continue
		case before == '.', c >= 'A' && c <= 'Z' && (before < 'A' || before > 'Z'):
			w.begins[w.len] = uint8(w.n)
			w.len++
		}
		before = c
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		w.text[w.n] = c
		w.n++
	}
}

// fieldOf returns what a name means by the longest of its ends that means anything.
func fieldOf(name string) field {
	const maxWords = 4
	var w words
	w.read(name)
	for from := max(0, w.len-maxWords); from < w.len; from++ {
		if f, known := names[string(w.text[w.begins[from]:w.n])]; known {
			return f
		}
	}
	return fieldNone
}

// genericKind returns the kind of span that a client calls by a word.
func genericKind(word string) genericSpanKind {
	if len(word) > 40 {
		return kindUnknown
	}
	var w words
	w.read(strings.Trim(word, `"`)) // some write every value as JSON
	return genericKinds[string(w.text[:w.n])]
}

// genericSpanKind is a kind of span. Of several that a span's attributes name, the greatest takes
// precedence.
type genericSpanKind uint8

const (
	kindUnknown genericSpanKind = iota
	kindAgent
	kindChain
	kindOther // of an agent, and none of the others
	kindTool
	kindModel
)

var genericKinds = byWord(map[genericSpanKind]string{
	kindModel: `llm generation chatmodel chat completion chatcompletion textcompletion llmcall modelcall model
		inference generate generatetext streamtext modelgeneration modelinvocation prompt`,
	kindTool:  `tool toolcall function functioncall tooluse toolexecution executetool`,
	kindAgent: `agent agentrun invokeagent assistant turn conversation workflow workflowrun agentturn crew`,
	kindChain: `chain task graph run trace pipeline workflowstep`,
	kindOther: `retriever embedding embeddings memory guardrail evaluator rerank reranker vectorstore retrieval`,
})

func holdsText(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return strings.TrimSpace(v.Str()) != ""
	case pcommon.ValueTypeMap:
		return v.Map().Len() > 0
	case pcommon.ValueTypeSlice:
		return v.Slice().Len() > 0
	}
	return false
}
