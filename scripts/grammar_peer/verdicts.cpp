// llama.cpp's own verdict on texts, beside ours. Argument: a GBNF file. Standard input: the lines of the example
// grammar_verdicts. The grammar is followed by the functions that llama.cpp's grammar sampler calls for every token.
#include "llama-grammar.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

// What the grammar's source needs of the rest of the library.
void llama_log_internal(ggml_log_level, const char * format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}
std::string format(const char * text, ...) { return text; }
extern "C" void ggml_abort(const char * file, int line, const char * text, ...) {
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
    abort();
}

static char verdict(const llama_grammar & start, const std::string & text) {
    llama_grammar * grammar = llama_grammar_clone_impl(start);
    char verdict = 'B';
    try {
        llama_grammar_accept_str(*grammar, text);
        for (const auto & stack : grammar->stacks) {
            if (stack.empty()) {
                verdict = 'W';
            }
        }
    } catch (const std::runtime_error &) {
        verdict = 'I';
    }
    llama_grammar_free_impl(grammar);
    return verdict;
}

int main(int, char ** arguments) {
    std::ifstream file(arguments[1]);
    std::stringstream source;
    source << file.rdbuf();
    llama_grammar * grammar =
        llama_grammar_init_impl(nullptr, source.str().c_str(), "root", false, nullptr, 0, nullptr, 0);
    if (!grammar) {
        fprintf(stderr, "%s: llama.cpp takes no such grammar\n", arguments[1]);
        return 2;
    }
    std::map<char, int> count;
    int wrong = 0;
    for (std::string line; std::getline(std::cin, line);) {
        std::string text;
        for (size_t at = 2; at + 1 < line.size(); at += 2) {
            text += static_cast<char>(std::stoi(line.substr(at, 2), nullptr, 16));
        }
        const char theirs = verdict(*grammar, text);
        count[theirs]++;
        if (theirs != line[0]) {
            wrong++;
            printf("  ours %c, llama.cpp %c: %s\n", line[0], theirs, text.c_str());
        }
    }
    printf("%s: %d whole, %d beginnings, %d neither; %d verdicts differ\n", arguments[1], count['W'], count['B'], count['I'], wrong);
    llama_grammar_free_impl(grammar);
    return wrong ? 1 : 0;
}
