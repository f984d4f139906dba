"""How far does a trained model reach if, without any more training, its encoder is exchanged, limited or dropped?"""
