"""Channels that break their word, each in another way: the state machine must notice every one of them."""

from dataclasses import replace

from tacit.split.exactly_once import AnsweringChannel, AskingChannel


class DrawsAnew(AnsweringChannel):
    """Answers a repeated request with fresh noise."""

    def _is_new(self, message, kind, step):
        turn = self.exchange.turn_of(message)
        answer = None if turn is None else self.exchange.answer(turn)
        if answer is not None and answer.payload.numel():
            self.line.send(replace(answer, payload=answer.payload + 1e-3))
            return False
        return super()._is_new(message, kind, step)


class TakesAnything(AnsweringChannel):
    """Answers a changed request as if it were the one before."""

    def _is_new(self, message, kind, step):
        turn = self.exchange._places.get((message.kind, message.step))
        return super()._is_new(message if turn is None else self.exchange.request(turn), kind, step)


class SendsFirst(AnsweringChannel):
    """Sends an answer before it is written down."""

    def send(self, message):
        self.line.send(message)
        super().send(message)


class AsksFirst(AskingChannel):
    """Sends a request before it is written down."""

    def send(self, message):
        self.line.send(message)
        self._trace("request sent")
        super().send(message)


class HearsTwice(AskingChannel):
    """Takes any answer for the one to its question."""

    def recv(self, kind, step):
        answer = self.exchange.answer(self.turn)
        if answer is None:
            answer = replace(self.line.recv(), kind=kind, step=step)
            self.exchange.write_answer(self.turn, answer)
        self.turn += 1
        return answer
